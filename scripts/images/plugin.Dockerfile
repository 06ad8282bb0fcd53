# The plugin that interLink calls. From the top of the repository: scripts/images/build, or
#   docker build --file scripts/images/plugin.Dockerfile --tag NAME .
# To have the same base each time, give its digest: --build-arg BASE=docker.io/library/python@sha256:...
ARG BASE=docker.io/library/python:3.13-slim

FROM ${BASE} AS build
COPY setup.py setup.cfg README.md LICENSE scripts/images/pins.txt /src/
COPY kueue_nats /src/kueue_nats
COPY plugin_server /src/plugin_server
COPY submitter /src/submitter
COPY templates /src/templates
RUN python -m pip download --no-cache-dir --no-deps --require-hashes --dest /wheels --requirement /src/pins.txt && \
    python -m venv --without-pip /opt/interlink && \
    python -m pip --python /opt/interlink/bin/python install --no-index --find-links /wheels '/src[plugin]'

FROM ${BASE}
COPY --from=build /opt/interlink /opt/interlink
ENV PATH=/opt/interlink/bin:/usr/local/bin:/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
ENTRYPOINT ["interlink-plugin"]
