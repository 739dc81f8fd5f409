"""Which service a host belongs to, by the values that OpenTelemetry's semantic conventions have for it.

Only a host of the service itself counts. A machine, a load balancer or an API gateway that is rented from a cloud
is a server of their own: it speaks OpenAI's protocol, and `openai` is what the conventions call that.
"""

from __future__ import annotations

import re

DEFAULT = "openai"
AZURE_OPENAI = "azure.ai.openai"

_DOMAINS = {
    "openai.azure.com": AZURE_OPENAI,
    "openai.azure.us": AZURE_OPENAI,
    "openai.azure.cn": AZURE_OPENAI,
    "cognitiveservices.azure.com": AZURE_OPENAI,
    "cognitiveservices.azure.us": AZURE_OPENAI,
    "cognitiveservices.azure.cn": AZURE_OPENAI,
    "services.ai.azure.com": "azure.ai.inference",
    "services.ai.azure.us": "azure.ai.inference",
    "models.ai.azure.com": "azure.ai.inference",
    "inference.ai.azure.com": "azure.ai.inference",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "codestral.mistral.ai": "mistral_ai",
    "api.x.ai": "x_ai",
    "api.perplexity.ai": "perplexity",
    "api.anthropic.com": "anthropic",
    "api.cohere.ai": "cohere",
    "api.cohere.com": "cohere",
    "api.moonshot.ai": "moonshot_ai",
    "api.moonshot.cn": "moonshot_ai",
    "ml.cloud.ibm.com": "ibm.watsonx.ai",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "generativelanguage.mtls.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "prediction.vertexai.goog": "gcp.vertex_ai",
}
"""A domain, with all hosts below it."""

_REGION = r"[a-z]{2,}(-[a-z]+)+-\d+"
_PATTERNS = (
    # The service's own name, then the region: an EC2 machine or an API gateway has other words there.
    (
        re.compile(
            rf"(^|\.)bedrock(-[a-z]+)*\.{_REGION}\.(vpce\.)?(amazonaws\.com(\.cn|\.eu)?|amazonaws\.eu|api\.aws)$"
        ),
        "aws.bedrock",
    ),
    # Regional (us-central1-aiplatform), multi-regional (aiplatform.us.rep), mutual TLS, and Private Service Connect.
    (
        re.compile(
            r"(^|\.)([a-z]+(-[a-z]+)*\d*-)?aiplatform(-[a-z0-9]+)*(\.(mtls|p|[a-z0-9-]+\.rep))?\.googleapis\.com$"
        ),
        "gcp.vertex_ai",
    ),
)


def provider_of(host: str, *, azure_client: bool = False) -> str:
    """The value of `gen_ai.provider.name` for a host name; `openai` for one that belongs to no known service."""
    host = host.lower().rstrip(".")
    labels = host.split(".")
    for start in range(len(labels)):
        known = _DOMAINS.get(".".join(labels[start:]))
        if known is not None:
            return known
    for pattern, provider in _PATTERNS:
        if pattern.search(host):
            return provider
    return AZURE_OPENAI if azure_client else DEFAULT
