# expctl: one image for the API, the steward, the workers and the migration.

FROM python:3.11.15-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY alembic alembic
COPY examples examples
COPY expctl expctl
COPY service service
COPY workers workers
RUN python -m venv /opt/expctl \
    && /opt/expctl/bin/pip install --no-cache-dir --disable-pip-version-check .

FROM python:3.11.15-slim
LABEL org.opencontainers.image.title="expctl" \
      org.opencontainers.image.licenses="Apache-2.0"
# ssh_config may name a ProxyCommand that runs ssh.
RUN apt-get update \
    && apt-get install --no-install-recommends -y openssh-client \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home --shell /usr/sbin/nologin expctl \
    && install -d -o expctl -g expctl -m 0700 /var/lib/expctl
COPY --from=build /opt/expctl /opt/expctl
ENV PATH=/opt/expctl/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    EXPCTL_DATA_DIR=/var/lib/expctl
USER expctl
WORKDIR /var/lib/expctl
VOLUME /var/lib/expctl
EXPOSE 8700
# Of the API; the compose file turns it off for what answers no requests.
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8700/readyz', timeout=4)"]
ENTRYPOINT ["expctl"]
CMD ["api", "--bind", "0.0.0.0"]
