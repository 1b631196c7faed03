"""Stub to be replaced."""
def explain_text(decomposition, form): return str(form.cascade) + str(decomposition) + str(form)
