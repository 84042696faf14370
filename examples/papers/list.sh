headwater evaluate --list --data "$HEADWATER_DATA"
