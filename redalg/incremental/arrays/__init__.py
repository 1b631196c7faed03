"""FusedForm on arrays: its expressions, leaf, merge and finish, in NumPy; torch has the operations alike."""
