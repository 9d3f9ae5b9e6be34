"""What the daemon shows over HTTP. `listening` is light; everything that needs a library is loaded by it when it is on."""
