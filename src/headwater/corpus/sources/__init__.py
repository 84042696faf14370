"""Where documents come from: text files, files of raw pages, and the documentation of installed packages."""
