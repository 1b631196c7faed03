"""Stub to be replaced."""
def explain_latex(decomposition, form): return str(form.cascade) + str(decomposition) + str(form)
