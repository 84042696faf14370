"""Steps that change or remove single documents."""
