make quickstart                                                       # trains for four minutes, on text of this machine
make quickstart ARGS="--text my_texts/ --minutes 20 --out my-model"   # with your own text
