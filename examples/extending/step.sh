pip install -q --no-deps --no-build-isolation examples/extending/step
mkdir texts
echo "THIS TEXT IS WRITTEN IN CAPITALS." > texts/loud.txt
echo "This text is not." > texts/calm.txt
headwater corpus build texts/ --out calm --set 'steps=["shouting"]'
headwater corpus stats calm
