"""Plans that were measured before, by the name of their problem."""
