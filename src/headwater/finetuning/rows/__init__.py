"""Rows of labelled tables: read a table, learn what its labels mean, divide the rows."""
