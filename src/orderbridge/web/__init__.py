"""What the daemon shows over HTTP: `listening` is light, and loads the others where something listens."""
