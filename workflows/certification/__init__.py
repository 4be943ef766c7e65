"""Checks of the installed machine and device, one kind a file, and the certificate of one that passes."""
