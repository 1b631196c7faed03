"""Stub to be replaced."""
def explain_html(decomposition, form): return str(form.cascade) + str(decomposition) + str(form)
