"""Apps that ship with fedward, so that a site needs to write no code."""
