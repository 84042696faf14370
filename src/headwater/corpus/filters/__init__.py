"""Rules that change or remove single documents."""
