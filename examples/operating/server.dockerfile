FROM python:3.12 AS build
COPY . /source
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source && cp /source/constraints.txt /wheels

FROM python:3.12-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir -c /wheels/constraints.txt "$(ls /wheels/*.whl)[serve]" && useradd --create-home headwater
USER headwater
WORKDIR /home/headwater
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/health')"]
CMD ["headwater", "serve", "--model", "small=/models/small", "--host", "0.0.0.0", "--api-key-file", "/run/secrets/keys"]
