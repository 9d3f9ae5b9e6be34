"""The daemon's web server. `listening` loads the other modules only if an address is configured."""
