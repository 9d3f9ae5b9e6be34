"""The work, one tick at a time: read, decide, write. Each tick returns counts."""
