"""The verbs, a module each; ``stratalog.cli.main`` imports the one that is used."""
