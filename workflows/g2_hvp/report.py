"""Report."""
def sections(parameters, store):
    return []
def texts(parameters, store):
    return {}
