"""The database: the tables that the POS shares, and every statement that reads or writes them."""
