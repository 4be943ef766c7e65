"""Parts that several workflows need: sections of files, nodes, sections of reports."""
