"""What both sides of the wall between engine and library share. It imports neither."""
