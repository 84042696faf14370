headwater evaluate --model run/model --tasks heldout --data tokens --out zero-shot
headwater report corpus tokenizer tokens run zero-shot --out report.html
headwater lineage zero-shot
