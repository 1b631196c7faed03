"""FusedForm -> programs: leaf, merge and finish as straight lines, of which every level of a reduction is a call."""
