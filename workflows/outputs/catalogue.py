"""Every command's JSON document, by the command's name."""

from __future__ import annotations

from workflows.outputs.campaigns import (
    DashboardOutput,
    ExportOutput,
    InitOutput,
    PlanOutput,
    ReportOutput,
    RunOutput,
    SchemaOutput,
    StatusOutput,
    SubmitOutput,
)
from workflows.outputs.files import CheckOutput, ConvertOutput, GcOutput, VerifyOutput
from workflows.outputs.forecasts import ForecastOutput
from workflows.outputs.machines import BenchOutput, CertifyOutput, TuneOutput
from workflows.outputs.moving import HandoverOutput, MergeOutput, PullOutput, PushOutput
from workflows.outputs.output import ErrorOutput, Output

OUTPUTS: dict[str, type[Output]] = {
    output.command: output
    for output in (
        InitOutput,
        RunOutput,
        SubmitOutput,
        PlanOutput,
        ForecastOutput,
        StatusOutput,
        DashboardOutput,
        ReportOutput,
        ExportOutput,
        SchemaOutput,
        CheckOutput,
        ConvertOutput,
        VerifyOutput,
        GcOutput,
        TuneOutput,
        BenchOutput,
        CertifyOutput,
        MergeOutput,
        PullOutput,
        PushOutput,
        HandoverOutput,
        ErrorOutput,
    )
}
