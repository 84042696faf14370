docker build --file examples/operating/server.dockerfile --tag headwater .
docker run --detach --name headwater --publish 8000:8000 --stop-timeout 650 \
    --volume "$PWD/models:/models:ro" --volume "$PWD/keys.txt:/run/secrets/keys:ro" headwater
docker kill --signal HUP headwater # opens the models whose folders have changed
