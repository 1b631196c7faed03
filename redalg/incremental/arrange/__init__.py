"""FusedForm -> forms that one loop holds: stages, axes as one, products oriented, axes unrolled."""
