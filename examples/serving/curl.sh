# A stream of server-sent events.
curl -sN "$HEADWATER_URL/v1/completions" -H 'Content-Type: application/json' \
    -d '{"prompt": "The river", "max_tokens": 5, "stream": true}'
# The log-probability of each token of a text.
curl -s "$HEADWATER_URL/v1/completions" -H 'Content-Type: application/json' \
    -d '{"prompt": "The river runs", "max_tokens": 0, "echo": true, "logprobs": 0}'
# A fine-tuned model: classes, and the words that changed the decision.
curl -s "$HEADWATER_URL/classify" -H 'Content-Type: application/json' \
    -d '{"model": "classes", "input": ["a stone lies"], "explain": true}'
# Metrics for Prometheus.
curl -s "$HEADWATER_URL/metrics"
