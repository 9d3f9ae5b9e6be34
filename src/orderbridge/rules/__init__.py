"""Pure decisions: no I/O, no clock of their own. What they return is carried out elsewhere."""
