make quickstart                                                       # trains for four minutes on text from this machine
make quickstart ARGS="my_texts/ --minutes 20 --out my-model"   # with your own text
