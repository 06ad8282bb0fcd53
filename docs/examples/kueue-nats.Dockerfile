# The operator as an image: docker build -t NAME -f docs/examples/kueue-nats.Dockerfile .
FROM python:3.13-slim
COPY . /src
RUN pip install --no-cache-dir '/src[kueue]'
USER 65534
ENTRYPOINT ["kueue-nats"]
