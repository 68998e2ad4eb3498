"""Receivers of RobustRL's weights inside inference engines."""
