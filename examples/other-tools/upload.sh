hf auth login
hf upload YOUR_NAME/river quickstart/run/model
headwater generate "The river" --model YOUR_NAME/river --download
