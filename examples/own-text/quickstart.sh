headwater quickstart my_texts/ --minutes 20 --out my-model
