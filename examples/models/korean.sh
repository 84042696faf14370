mkdir packages-ko
(cd packages-ko && apt-get download libreoffice-help-ko gimp-help-ko debian-handbook installation-guide-amd64 debian-faq-ko)
for name in $(sed -n 's/^repository = "\(.*\)"/\1/p' recipes/texts/korean.toml | sort -u); do
    git clone --bare "https://github.com/$name" "repositories/$name"
done
python tools/gather.py recipes/texts/korean.toml --data data --packages packages-ko --out text-ko
headwater corpus build text-ko/documentation --recipe webtext --out documentation-ko \
    --set wikipedia=false --set 'languages=["ko"]'
headwater corpus build text-ko/prose --out prose-ko \
    --set language=true --set 'languages=["ko"]' --set near_duplicates=true
headwater corpus build documentation-ko prose-ko --out corpus-ko
headwater tokenizer train corpus-ko --kind gpt2 --vocab-size 5120 --out tokenizer-ko
headwater pack corpus-ko --tokenizer tokenizer-ko --out tokens-ko --validation 0.01
