"""What Stratalog is compared with: golden data, other implementations, real Kafka."""
