cat > Modelfile <<'END'
FROM ./model.gguf
TEMPLATE "{{ .Prompt }}"
PARAMETER num_ctx 256
PARAMETER num_predict 200
PARAMETER temperature 0.8
PARAMETER top_k 40
END
ollama create river -f Modelfile
ollama run river "The river"
