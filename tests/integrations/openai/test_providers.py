"""Which service a host belongs to."""

from __future__ import annotations

import pytest

from midstream.integrations.openai.providers import provider_of


@pytest.mark.parametrize(
    ("provider", "hosts"),
    [
        ("openai", [
            "api.openai.com", "eu.api.openai.com", "localhost", "127.0.0.1", "::1", "", "vllm.internal",
            "ec2-192-0-2-7.compute-1.amazonaws.com", "ec2-192-0-2-7.us-west-2.compute.amazonaws.com",
            "vllm-0a1b.elb.us-east-1.amazonaws.com", "bedrock-12345.us-east-1.elb.amazonaws.com",
            "abc123.execute-api.us-east-1.amazonaws.com", "bedrock.s3.us-east-1.amazonaws.com",
            "runtime.sagemaker.us-east-1.amazonaws.com", "x.lambda-url.us-east-1.on.aws", "amazonaws.com",
            "storage.googleapis.com", "my-aiplatform.storage.googleapis.com", "service-abc-uc.a.run.app",
            "evilapi.groq.com.example.com", "notapi.x.ai.evil", "xapi.groq.com", "gateway.azure-api.net",
            "bedrock-runtime.us-east-1.amazonaws.com.evil.example", "openrouter.ai",
        ]),
        ("aws.bedrock", [
            "bedrock-runtime.us-west-2.amazonaws.com", "bedrock.eu-central-1.amazonaws.com",
            "bedrock-runtime-fips.us-gov-west-1.amazonaws.com", "bedrock-runtime.cn-north-1.amazonaws.com.cn",
            "vpce-0a1b-xyz.bedrock-runtime.us-east-1.vpce.amazonaws.com", "bedrock-mantle.us-east-1.api.aws",
            "Bedrock-Runtime.US-West-2.AmazonAWS.com.",
        ]),
        ("gcp.vertex_ai", [
            "aiplatform.googleapis.com", "us-central1-aiplatform.googleapis.com",
            "northamerica-northeast1-aiplatform.googleapis.com", "aiplatform.us.rep.googleapis.com",
            "us-central1-aiplatform.mtls.googleapis.com", "123.us-central1-456.prediction.vertexai.goog",
        ]),
        ("gcp.gemini", ["generativelanguage.googleapis.com"]),
        ("azure.ai.openai", [
            "me.openai.azure.com", "me.privatelink.openai.azure.com", "me.openai.azure.us",
            "me.cognitiveservices.azure.com",
        ]),
        ("azure.ai.inference", ["me.services.ai.azure.com", "me.eastus2.models.ai.azure.com"]),
        ("groq", ["api.groq.com"]),
        ("mistral_ai", ["api.mistral.ai", "codestral.mistral.ai"]),
        ("x_ai", ["api.x.ai", "us-east-1.api.x.ai"]),
        ("deepseek", ["api.deepseek.com"]),
        ("ibm.watsonx.ai", ["us-south.ml.cloud.ibm.com"]),
    ],
)  # fmt: skip
def test_provider_is_the_service_that_owns_the_host(provider: str, hosts: list[str]) -> None:
    """What people rent from a cloud is their own server, and a lookalike is nobody's."""
    assert {host: provider_of(host) for host in hosts} == dict.fromkeys(hosts, provider)


def test_client_for_azure_talks_to_azure_whatever_its_host() -> None:
    """A gateway in front of Azure has a name of its own."""
    assert provider_of("gateway.azure-api.net", azure_client=True) == "azure.ai.openai"
    assert provider_of("api.groq.com", azure_client=True) == "groq"
