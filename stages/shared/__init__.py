"""What stages of several folders need."""
