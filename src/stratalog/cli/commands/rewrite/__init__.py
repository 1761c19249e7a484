"""The verbs that rewrite logs. Without --write, each of them only prints its plan."""
