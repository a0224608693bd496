# One image for the join service and for the Spark cluster it runs on: PySpark brings Spark along, and executors need balajoin.
FROM python:3.11.13-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home balajoin \
    && install --directory --owner=balajoin /var/lib/balajoin /var/cache/balajoin /opt/balajoin

WORKDIR /opt/balajoin
COPY pyproject.toml README.md LICENSE ./
COPY kafka kafka
COPY streaming streaming
# Kernels are compiled here, and where a machine's processor is another one, into the same folder
RUN pip install --no-cache-dir . \
    && cd / && python -c 'from balajoin.compute.warm_up import load_kernels; load_kernels()' \
    && chown -R balajoin "$(python -c 'import balajoin; print(balajoin.__path__[0])')/__pycache__"
COPY examples examples

USER balajoin
ENV BALAJOIN_CACHE=/opt/balajoin/cache PYTHONUNBUFFERED=1
# The connector's jars, so that a start needs no network
RUN python -c 'import os; from balajoin.spark.jars import default_cache, fetch; fetch("connector", default_cache(os.environ))'

ENTRYPOINT ["tini", "--"]
CMD ["balajoin", "--help"]
