"""What the program says about itself."""
