mkdir texts
echo "THIS TEXT IS WRITTEN IN CAPITALS." > texts/loud.txt
echo "This text is not." > texts/calm.txt
headwater corpus build texts/ --out calm --set shouting=true
headwater corpus stats calm
