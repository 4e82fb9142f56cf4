"""Values and texts as people and models see them: shortened, escaped, without secrets."""
