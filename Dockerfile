# The programs on a minimal Debian. All the work is bootstrap's.
FROM debian:bookworm-slim
WORKDIR /plumb
COPY . .
RUN ./bootstrap build
ENV PATH=/plumb/build/bin:$PATH
CMD ["plumb", "--help"]
